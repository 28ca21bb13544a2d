"""Live training: the debugger's side of the wire (server) and the training's side (client).

``wire``     the messages of the protocol, one table, and our additions to it.
``types``    what crosses the seam between a connection and who drives it.
``control``  ``Training`` and ``Trainings``: how a training is driven, whoever it is.
``server/``  the gRPC server that trainings connect to, and the state machine behind it.
``source``   a training as a ``Source``: what it sent is kept in a spool, as a dump directory.
``client/``  the training's side: connection, recorder, flight recorder. Needs NumPy and gRPC only.
"""
