"""What goes over the wire between a service and its clients, defined once."""
