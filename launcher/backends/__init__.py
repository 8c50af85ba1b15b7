"""What a sandbox is made with, where that is not bubblewrap, and what it then does not hold."""
