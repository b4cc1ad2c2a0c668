"""From a query to an answer: the models, the queue in front of each, and the order in which clients take turns."""
