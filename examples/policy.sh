#!/bin/sh
# Asks a service for a policy, for one move and for an annotated game:   sh examples/policy.sh [URL]
set -eu
url=${1:-http://127.0.0.1:8000}

echo "after 1. e4 e5, at a rating of 1500, the three most probable moves:"
curl -sf "$url/v1/policy" -H 'Content-Type: application/json' \
  -d '{"moves": ["e4", "e5"], "elo": 1500, "top_k": 3, "include": ["san"]}'
echo

echo "one move, drawn as players of that rating move:"
curl -sf "$url/v1/move" -H 'Content-Type: application/json' \
  -d '{"fen": "startpos", "elo": 1500, "method": "sample", "seed": 7, "include": ["san"]}'
echo

echo "a game, annotated:"
curl -sf "$url/v1/games" -H 'Content-Type: application/json' -H 'Accept: application/x-chess-pgn' \
  -d '{"pgn": "1. e4 e5 2. Qh5 Nc6 3. Bc4 Nf6 4. Qxf7# 1-0"}'
