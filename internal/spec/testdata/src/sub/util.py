print("sub")
