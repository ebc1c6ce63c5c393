def init():
    pass


def run(data):
    return data
