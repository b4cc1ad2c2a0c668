"""What would have leaked: kinds of leakage, the sketches, the recorder, the store."""
