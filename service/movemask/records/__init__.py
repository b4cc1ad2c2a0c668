"""What is written down of an answer: the batches that the audit gets, and the tables made of them."""
