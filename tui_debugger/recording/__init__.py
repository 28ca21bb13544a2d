"""Configurations of recorders: MindSpore's ``data_dump.json`` and msprobe's ``config.json``.

``mindspore`` and ``msprobe`` know every key and check a file; ``keys`` is shared, ``json_lines`` reads JSON with line
numbers, ``disk`` estimates the size of a dump. Nothing here opens a dump.
"""
