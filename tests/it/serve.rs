//! `dr serve`: who is let in, what the API answers, streams that survive, and the page in a real browser.

/// Requests of programs, and of those that should not be let in.
mod api;

/// The page in Chromium.
mod browser;

pub(crate) mod client;

use self::client::{PATIENCE, Page};
use crate::common::World;

/// Starts a server on a port that is free.
fn serve(world: &World) -> Page {
    serve_at(world, 0)
}

fn serve_at(world: &World, port: u16) -> Page {
    Page::start(&mut world.command(["serve", "--port", &port.to_string()]))
}
