"""What `headrace doctor` looks at: a file for each family of checks, a line for each in `registry`."""
