"""Raw columns to encoded columns: transforms, hashes, vocabularies and value counts."""
