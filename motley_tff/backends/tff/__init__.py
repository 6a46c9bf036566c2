"""TFF as a backend: its own worker or several, and its aggregators."""
