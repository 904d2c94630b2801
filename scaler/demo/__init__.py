"""The demo: a set of files and processes around the production daemon, a view, a summary, a picture."""
