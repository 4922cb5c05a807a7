"""Programs that measure recmill and its rivals in one run; `recmill bench NAME` runs them."""
