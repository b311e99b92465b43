//! Sizes of tiles and blocks.

/// Rows of a tile.
pub(super) const TILE: usize = 16;
/// Size of a tile in floats.
pub(super) const TILE_FLOATS: usize = 256;
/// Rows and columns of a block of c: two tiles in each direction.
pub(super) const BLOCK: usize = 32;
/// Inner elements of a tile.
pub(super) const SLAB: usize = 32;

/// Size in floats of a slab of a block's rows or columns, split into this many parts.
pub(super) const fn slab_floats(parts: usize) -> usize {
    parts * 2 * TILE_FLOATS
}
