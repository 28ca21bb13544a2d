"""The screen: a thin shell over Session. Nothing outside this package imports textual."""
