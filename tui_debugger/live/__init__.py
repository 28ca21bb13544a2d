"""Live training: the debugger's side of the wire (server) and the training's side (client).

``wire``         the messages of the protocol, one table, and our additions to it.
``server/``      the gRPC server that trainings connect to, and the state machine behind it.
``rank``         what came from a training: statistics and values of its steps; ``graph`` its nodes.
``source``       trainings as a ``Source``: what they sent is kept in a ``spool``.
``dump_writer``  writes what was kept as a dump directory.
``client/``      the training's side: connection, recorder, flight recorder. Needs NumPy and gRPC only.
"""
