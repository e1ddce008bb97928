//! Parameters of DCQCN's reaction point.

/// Parameters of [`Dcqcn`](super::Dcqcn), under the names that ConnectX cards have for them
/// (`cc_params/` of debugfs).
///
/// ```
/// use roce_transport::congestion::DcqcnParameters;
///
/// let slower = DcqcnParameters { rp_ai_rate: 10, ..DcqcnParameters::PAPER };
/// assert_eq!(slower.rp_time_reset, 55);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnParameters {
    /// Weight of the old value when α is updated, in 1/1024: 1 − g. At most 1024.
    pub rp_dce_tcp_g: u16,
    /// Time without a CNP after which α falls, in µs; at least 1.
    pub rp_dce_tcp_rtt: u32,
    /// First value of α, in 1/1023. At most 1023.
    pub rp_initial_alpha_value: u16,
    /// Shortest time between two cuts of the rate in µs; 0 cuts at every CNP.
    pub rp_rate_reduce_monitor_period: u32,
    /// Time between two increases by the timer in µs; at least 1.
    pub rp_time_reset: u32,
    /// Bytes sent between two increases by the byte counter; 0 switches it off.
    pub rp_byte_reset: u32,
    /// Increases of each kind that only approach the target rate: F.
    pub rp_threshold: u32,
    /// Step of the target rate once one kind has passed F, in Mbit/s.
    pub rp_ai_rate: u32,
    /// Step of the target rate once both kinds have passed F, in Mbit/s.
    pub rp_hai_rate: u32,
    /// A cut takes α/2^(`rp_gd` − 10) of the rate. 10 to 20.
    pub rp_gd: u8,
    /// Least share of the rate that a cut leaves, in percent. At most 100.
    pub rp_min_dec_fac: u8,
    /// Smallest rate in Mbit/s; at least 1.
    pub rp_min_rate: u32,
    /// Largest rate in Mbit/s; 0 for the line rate.
    pub rp_max_rate: u32,
    /// Rate after the first CNP of an unlimited sender in Mbit/s; 0 for a cut like all others.
    pub rp_rate_to_set_on_first_cnp: u32,
    /// Every cut lowers the target rate to the rate before it.
    pub rp_clamp_tgt_rate: bool,
    /// A cut does so if the timer has increased the rate since the last one. One after an increase by
    /// the byte counter always does.
    pub rp_clamp_tgt_rate_ati: bool,
}

impl DcqcnParameters {
    /// Those of the DCQCN paper (SIGCOMM 2015). It gives no value for the faster increase; here it is
    /// the slower one.
    pub const PAPER: Self = Self {
        rp_dce_tcp_g: 1020,
        rp_dce_tcp_rtt: 55,
        rp_initial_alpha_value: 1023,
        rp_rate_reduce_monitor_period: 0,
        rp_time_reset: 55,
        rp_byte_reset: 10_000_000,
        rp_threshold: 5,
        rp_ai_rate: 40,
        rp_hai_rate: 40,
        rp_gd: 11,
        rp_min_dec_fac: 50,
        rp_min_rate: 1,
        rp_max_rate: 0,
        rp_rate_to_set_on_first_cnp: 0,
        rp_clamp_tgt_rate: true,
        rp_clamp_tgt_rate_ati: true,
    };

    /// The defaults of ConnectX cards.
    pub const CONNECTX: Self = Self {
        rp_dce_tcp_g: 1019,
        rp_dce_tcp_rtt: 1,
        rp_rate_reduce_monitor_period: 4,
        rp_time_reset: 300,
        rp_byte_reset: 32_767,
        rp_threshold: 1,
        rp_ai_rate: 5,
        rp_hai_rate: 50,
        rp_clamp_tgt_rate: false,
        ..Self::PAPER
    };
}

impl Default for DcqcnParameters {
    /// [`CONNECTX`](Self::CONNECTX).
    fn default() -> Self {
        Self::CONNECTX
    }
}
