"""The room: a sandbox with no network of its own, whose only way out is the gate."""
