namespace pop {}
