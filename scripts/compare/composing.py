"""The list of calls whose arguments are chosen to fit each other.

COMPOSED: name -> (forms, maker, how). Forms: "f" a function, "m" a method. A maker: function(generator) -> (arguments,
options); how: "table" where accelhost gives a table and PyTorch a tuple."""

COMPOSED = {}


def composed(names, forms="f", how=""):
    def add(function):
        for name in names.split():
            COMPOSED[name] = (forms, function, how)
        return function
    return add


def count_of(value, dim):
    """The size of a dim that may be out of range."""
    return value.shape[dim] if -value.dim() <= dim < value.dim() else 1
