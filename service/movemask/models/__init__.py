"""What is done to a network: installing, importing, checking, diagnosing, calibrating, quantising."""
