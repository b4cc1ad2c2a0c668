"""The UCI protocol, for chess GUIs, tournament runners and lichess-bot.

Source: Stefan Meyer-Kahlen, "Description of the universal chess interface (UCI)", April 2006.
"""
