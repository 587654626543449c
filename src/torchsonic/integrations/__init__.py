"""Other libraries' doors: each file needs the library it is named after, and is imported by whoever wants it."""
