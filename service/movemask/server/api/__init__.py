"""What is asked and answered: routes, bodies, requests, responses, and their description."""
