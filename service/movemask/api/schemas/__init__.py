"""What goes in and out as JSON: requests, answers, the audit and the models."""
