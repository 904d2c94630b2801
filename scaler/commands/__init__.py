"""What each subcommand does, one module each; imported only when called."""
