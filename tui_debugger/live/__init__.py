"""Live training: the debugger's side of the wire (server) and the training's side (client).

``wire``         the messages of the protocol, one table, and our additions to it.
``server/``      the gRPC server that trainings connect to, and the state machine behind it.
``rank``         statistics and values that a training sent; ``graph`` its nodes.
``source``       trainings as a ``Source``; a ``spool`` keeps their values.
``dump_writer``  writes the kept values as a dump directory.
``client/``      the training's side: connection, recorder, flight recorder. Needs NumPy and gRPC only.
"""
