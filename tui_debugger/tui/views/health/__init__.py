"""The health map: steps across, scopes down."""
