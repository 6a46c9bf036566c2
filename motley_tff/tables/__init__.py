"""What the tables' columns are, and reading them."""
