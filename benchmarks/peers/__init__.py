"""What a user would otherwise write: the same network behind other servers, as small as it honestly goes."""
