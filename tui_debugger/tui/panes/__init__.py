"""The five panes. They show what they are given and say what the user did; they know no session."""
