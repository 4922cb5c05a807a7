"""The Python front door: one function for each verb of the command line, which calls the same functions."""
