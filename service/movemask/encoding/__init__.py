"""Vocabularies: the move of each logit, and how castling and promotions are written. Encoders: the networks' input."""
