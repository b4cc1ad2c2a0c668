"""How the shipped network was made. torch lives only here; see training/README.md for the commands."""
