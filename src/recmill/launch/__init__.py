"""Starting a command in many processes: planned purely, shown as it is, submitted thinly."""
