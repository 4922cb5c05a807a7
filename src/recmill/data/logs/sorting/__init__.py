"""Files of rows, sorted by a column in bounded memory."""
