"""Speed and memory of the operator. Entries are data, contenders are functions, JSON is the result."""
