"""What masks leak: kinds, measuring, causes, and verdicts on other programs' numbers."""
