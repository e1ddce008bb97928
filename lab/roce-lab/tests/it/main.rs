//! Lessons, their pages and what they measure.

mod book;
mod captures;
mod common;
mod fabric;
mod lessons;
mod pages;
mod scale;
