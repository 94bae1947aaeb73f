"""Pages of rules as people see them."""
