import six

print("six", six.__version__)
