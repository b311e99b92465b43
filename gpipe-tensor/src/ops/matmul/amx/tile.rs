//! Sizes of tiles and blocks.

/// Rows of a tile.
pub(super) const TILE: usize = 16;
/// Floats that take as much room as a tile.
pub(super) const TILE_FLOATS: usize = 256;
/// Rows and columns of c that are computed at once: two tiles each way.
pub(super) const BLOCK: usize = 32;
/// Inner elements of a tile.
pub(super) const SLAB: usize = 32;

/// Size in floats of a slab of a block's rows or columns, split into this many parts.
pub(super) const fn slab_floats(parts: usize) -> usize {
    parts * 2 * TILE_FLOATS
}
