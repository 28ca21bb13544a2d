"""Real trainings, healthy and sick, under the recommended watchpoints."""
