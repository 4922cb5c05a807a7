"""Tables that are larger than memory: a cache of rows over a slower place that holds them all."""
