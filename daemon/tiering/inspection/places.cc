// See places.h.
#include "daemon/tiering/inspection/places.h"

#include <optional>
#include <unordered_map>

namespace tier::tiering {
namespace {

PlaceRuns RamOf(const Tables& tables, const Piece& piece) {
  PlaceRuns places;
  for (base::PageRun run : tables.RunsOf(piece)) {
    const WindowIndex window = tables.windows.WindowOf(run);
    run.block += tier::Value(window) * uint32_t{kWindowSizeMax / kBlockSize} - tables.windows.FirstBlock(window);
    places.Add(run);
  }
  return places;
}

}  // namespace

std::vector<PiecePlace> NamedPlaces(const Tables& tables) {
  std::unordered_map<uint32_t, uint64_t> transfers;  // Cookie by piece.
  tables.flights.ForEach([&](FlightIndex index, const Flight& flight) {
    transfers.emplace(Value(flight.piece), static_cast<uint64_t>(index));
  });
  std::vector<PiecePlace> places;
  places.reserve(tables.pieces.used());
  tables.pieces.ForEachUsed([&](PieceId id, const Piece& piece) {
    if (!piece.ram && !piece.ssd_run) return;
    PiecePlace& place = places.emplace_back();
    place.tensor = tables.tensors[piece.tensor].id;
    place.piece = piece.number;
    place.generation = piece.generation;
    place.ram = RamOf(tables, piece);
    if (piece.ssd_run) {
      place.extent = piece.extent();
      for (const base::PageRun run : tables.ports.extents.RunsOf(place.extent)) place.runs.Add(run);
    }
    const auto transfer = transfers.find(Value(id));
    if (transfer != transfers.end()) place.transfer = transfer->second;
  });
  return places;
}

}  // namespace tier::tiering
