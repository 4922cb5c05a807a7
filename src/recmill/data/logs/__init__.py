"""Files of rows: text, packed text and Parquet, cut into segments and splits."""
