"""The one exception that means: the input is at fault, and here is what to do."""


class InputError(ValueError):
    """Bad input. The message says where (file, line, key), what is wrong and what was expected.

    The command line prints it as one paragraph and exits with code 2.
    """
